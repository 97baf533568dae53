"""Where operators ran, from the tables of two releases of the runtime."""

from inference.perfdetail import operators

# The columns of librknnrt 2.x; numbers and names are made up.
TWO = r"""
------------------------------------------------------------------------------
                     Network Layer Information Table
------------------------------------------------------------------------------
ID   OpType           DataType Target InputShape        OutputShape  Cycles(DDR/NPU/Total) Time(us) MacUsage(%) WorkLoad(0/1/2) RW(KB) FullName
------------------------------------------------------------------------------
1    InputOperator    UINT8    CPU    \                 (1,3,640,640) 0/0/0                 12       \           0.0%/0.0%/0.0%  0      InputOperator:images
2    ConvExSwish      INT8     NPU    (1,3,640,640),(16,3,3,3),(16) (1,16,320,320) 1/2/2    1456     7.5/0.0/0.0 100.0%/0.0%/0.0% 2805  Conv:/model.0/conv
3    exGroupNorm      FLOAT16  CPU    (1,16,320,320)    (1,16,320,320) 0/0/0               20500    \           0.0%/0.0%/0.0%  12     exGroupNorm:/n
4    OutputOperator   FLOAT16  CPU    (1,84,8400)       \            0/0/0                 80       \           0.0%/0.0%/0.0%  9      OutputOperator:out
------------------------------------------------------------------------------
Total Operator Elapsed Per Frame Time(us): 22048
"""  # noqa: E501
# The columns of 1.x, whose heads have two words, as its log prints them.
ONE = r"""
D RKNN: [05:07:06.566] ID  OpType  DataType Target InputShape OutputShape DDR Cycles NPU Cycles Total Cycles Time(us) MacUsage(%) RW(KB) FullName
D RKNN: [05:07:06.566] 0   Conv    INT8     NPU    (1,3,4,4),(8,3,3,3) (1,8,4,4) 10 20 20 35 \ 12 Conv:a
D RKNN: [05:07:06.566] 1   Softmax FLOAT16  CPU    (1,8,4,4)  (1,8,4,4) 0 0 0 \ \ 1 Softmax:b
"""  # noqa: E501


def test_operators_of_release_two() -> None:
    """Kind, target and microseconds by the heads of their columns."""
    found = operators(TWO)

    assert [(one.kind, one.target) for one in found] == [
        ("InputOperator", "cpu"),
        ("ConvExSwish", "npu"),
        ("exGroupNorm", "cpu"),
        ("OutputOperator", "cpu"),
    ]
    assert found[2].seconds == 0.0205


def test_operators_of_release_one() -> None:
    """Heads of two words are one column, a time that is none is 0."""
    assert [(one.kind, one.target, one.seconds) for one in operators(ONE)] == [
        ("Conv", "npu", 35e-6),
        ("Softmax", "cpu", 0.0),
    ]


def test_other_text_has_none() -> None:
    """An empty answer or another format is no operator."""
    assert operators("") == ()
    assert operators("1 Conv INT8 NPU\nID nothing known\n2 Conv INT8 NPU") == ()

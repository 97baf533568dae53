/* A librknnrt that adds one to every byte: the structures are written from the runtime's manual,
 * independently of the program under test. It refuses a core that no chip has. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

typedef struct {
    uint32_t index, n_dims, dims[16];
    char name[256];
    uint32_t n_elems, size;
    int fmt, type, qnt_type;
    int8_t fl;
    int32_t zp;
    float scale;
    uint32_t w_stride, size_with_stride;
    uint8_t pass_through;
    uint32_t h_stride;
} attr;
typedef struct { uint32_t index; void *buf; uint32_t size; uint8_t pass_through; int type, fmt; } input;
typedef struct { uint8_t want_float, is_prealloc; uint32_t index; void *buf; uint32_t size; } output;
typedef struct { char *data; uint64_t length; } perf;
typedef struct { char api[256], driver[256]; } version;
typedef struct { uint32_t flags; int mask; unsigned char in[12]; } context;

static char table[] =
    "ID OpType DataType Target InputShape OutputShape Cycles(DDR/NPU/Total) Time(us) FullName\n"
    "1 InputOperator UINT8 CPU \\ (1,2,2,3) 0/0/0 10 in\n"
    "2 Conv INT8 NPU (1,2,2,3) (1,12) 0/0/0 50 Conv:a\n"
    "3 Softmax FLOAT16 CPU (1,12) (1,12) 0/0/0 2500 Softmax:b\n";

int rknn_init(uint64_t *handle, void *model, uint32_t size, uint32_t flags, void *extend) {
    if (size < 4 || memcmp(model, "RKNN", 4) != 0) return -6;
    context *made = calloc(1, sizeof *made);
    made->flags = flags;
    *handle = (uint64_t)(uintptr_t)made;
    return 0;
}
int rknn_dup_context(uint64_t *from, uint64_t *to) {
    context *made = calloc(1, sizeof *made);
    *made = *(context *)(uintptr_t)*from;
    *to = (uint64_t)(uintptr_t)made;
    return 0;
}
int rknn_destroy(uint64_t handle) { free((void *)(uintptr_t)handle); return 0; }
int rknn_set_core_mask(uint64_t handle, int mask) {
    ((context *)(uintptr_t)handle)->mask = mask;
    return mask < 8 ? 0 : -5;
}
int rknn_query(uint64_t handle, int command, void *info, uint32_t size) {
    context *mine = (context *)(uintptr_t)handle;
    if (command == 0 && size == 8) { ((uint32_t *)info)[0] = 1; ((uint32_t *)info)[1] = 1; return 0; }
    if ((command == 1 || command == 2) && size == sizeof(attr)) {
        attr *one = info;
        if (one->index != 0) return -5;
        one->n_dims = command == 1 ? 4 : 2;
        uint32_t dims[] = {1, 2, 2, 3}, flat[] = {1, 12};
        memcpy(one->dims, command == 1 ? dims : flat, one->n_dims * 4);
        strcpy(one->name, command == 1 ? "images" : "boxes");
        one->n_elems = 12;
        one->size = 12;
        one->type = 2;
        return 0;
    }
    if (command == 3 && size == sizeof(perf)) {
        if (!(mine->flags & 8)) return -5;
        ((perf *)info)->data = table;
        ((perf *)info)->length = sizeof table - 1;
        return 0;
    }
    if (command == 5 && size == sizeof(version)) { strcpy(((version *)info)->api, "9.8.7 (stub)"); return 0; }
    return -5;
}
int rknn_inputs_set(uint64_t handle, uint32_t count, input inputs[]) {
    if (count != 1 || inputs[0].size != 12 || inputs[0].type != 3 || inputs[0].fmt != 1) return -8;
    memcpy(((context *)(uintptr_t)handle)->in, inputs[0].buf, 12);
    return 0;
}
int rknn_run(uint64_t handle, void *extend) {
    return ((context *)(uintptr_t)handle)->in[0] == 255 ? -2 : 0;
}
int rknn_outputs_get(uint64_t handle, uint32_t count, output outputs[], void *extend) {
    if (count != 1 || !outputs[0].want_float || outputs[0].is_prealloc) return -9;
    float *made = malloc(12 * sizeof *made);
    for (int i = 0; i < 12; i++) made[i] = ((context *)(uintptr_t)handle)->in[i] + 1.0f;
    outputs[0].buf = made;
    outputs[0].size = 12 * sizeof *made;
    return 0;
}
int rknn_outputs_release(uint64_t handle, uint32_t count, output outputs[]) {
    free(outputs[0].buf);
    return 0;
}

"""The policy in a closed loop with the board model: what it does to heat, work and Pods.

A replay of recorded temperatures cannot answer "and then?". Here the board answers: Pods heat it,
the policy takes them away or keeps them out, and the board cools. The code of plugin and guard is
the one that runs in a cluster; boards, Pods and scheduler are models.
"""

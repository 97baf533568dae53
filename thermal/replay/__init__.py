"""Replays recorded temperatures through the policy, to see what the guard would do."""

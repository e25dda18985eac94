"""Plays the scenarios of `tests/sdk/scenarios` against the drivers of all SDKs and judges what they do."""

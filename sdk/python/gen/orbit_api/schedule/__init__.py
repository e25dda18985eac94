"""Generated from proto/ by scripts/generate.py. Do not edit."""

"""Generated from proto/ by scripts/generate_python.py. Do not edit."""

"""The rules, one file each, named after what they find."""

"""Pieces of a page that Streamlit draws."""

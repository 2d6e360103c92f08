"""What a page shows, as plain data read from the run store; nothing here knows Streamlit."""

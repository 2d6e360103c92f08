"""What people see: a Streamlit app that reads what was written and launches processes."""

"""What people see: fonts, colours and tables of text."""

"""Looking at runs: reading their files, the web page, plots and reports."""

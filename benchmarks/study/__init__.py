"""The paper's recommendation study on any data: runs, report and figures."""

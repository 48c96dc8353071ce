"""Templates, plots and number formats of all reports: of datasets, runs, sweeps and evaluations."""

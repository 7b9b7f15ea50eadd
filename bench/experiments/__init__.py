"""One module for each figure or table that the project answers for; ``srtm bench figures`` runs the simulated ones."""

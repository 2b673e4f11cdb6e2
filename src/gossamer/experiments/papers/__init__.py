"""The experiments of papers, declared: each module makes the study of one paper from what is asked for."""

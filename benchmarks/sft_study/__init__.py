"""Parts of the study of noisy fine-tuning."""

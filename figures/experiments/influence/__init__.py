"""Influence of training data: synthetic mixture (`removal`), real data (`real_data`), a CNN (`cnn`, `controls`)."""

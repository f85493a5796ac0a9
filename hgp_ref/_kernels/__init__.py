"""Compiled loops on host arrays, private: what they compute is defined by the folders that call them."""

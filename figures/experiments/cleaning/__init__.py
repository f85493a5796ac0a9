"""Hyper-cleaning: the experiment (`runs`) and the controls around it (`controls`)."""

"""Personalized models: rows and sizes (`settings`), one run (`runs`), numbers (`page`), `controls`, `refresh`."""

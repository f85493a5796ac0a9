"""Experiments behind the figures and tables, and their controls.

estimation       error of the hyper-gradient estimate (Fig. 1a, 1b)
influence        predicted and actual change when training data are removed (Fig. 1c, A2, real data)
cleaning         hyper-cleaning of wrong labels
personalization  the table of personalized models (Fig. A3)
comparison       HGP and other bilevel methods at equal traffic (Table 1)
"""

"""The home of `hgp_ref.influence`; everything else about removals is in `hgp_ref.attribution`."""

from hgp_ref.attribution.predict import Influence, influence

__all__ = ["Influence", "influence"]

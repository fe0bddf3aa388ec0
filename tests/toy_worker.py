"""Preloaded by the dask workers of the tests: puts the toy model behind the door."""

import toy

toy.install()

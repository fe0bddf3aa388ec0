"""The colours and port speeds that every figure shares, on paper and in the browser.

Okabe and Ito's colours for lines and words, a ramp from light to dark for bands: both can be told apart by colour-blind eyes and
in grey.
"""

PORTS = (50, 100, 200, 400, 800, 1600, 3200)  # Gb/s: the port speeds that are sold, one generation each
INK, MUTED = "#1a1a1a", "#6b6b6b"
BANDS = ("#ffffe5", "#f1f6c1", "#cfe8b5", "#96d2b9", "#55b6c2", "#2f8fbe", "#2560a8", "#1b2f78")  # light to dark
SETS = ("#e8e8e8", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#332288", "#000000")

"""Pure mathematics: two Distributions in, a Divergence out; batched in torch float64."""

import warnings

# torch looks for NumPy when it is imported and says so when there is none; nothing here needs it.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

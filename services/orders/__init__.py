"""Orders: the purchase of a reservation, its payment in the background, and refunds of what is not backed."""

"""The gateway's API: line, lotteries, public keys and the fans' pages."""

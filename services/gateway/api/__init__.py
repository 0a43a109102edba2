"""The gateway's API: line, forward-auth, lotteries and the fans' pages."""

"""What the gateway answers: the line, forward-auth, lotteries and the fans' pages."""

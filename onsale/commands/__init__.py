"""What an operator can say to `onsale` about rooms, codes and events, one file a noun."""

"""What only somebody with a checkout runs: it makes documents, clients and boards, and is no part of the product."""

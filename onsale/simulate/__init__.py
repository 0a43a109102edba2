"""A crowd that lives through an on-sale over real HTTP and SSE, and checks what it was promised."""

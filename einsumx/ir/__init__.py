"""The data of a contraction: its equation, its ops and the program that they make, checked and priced."""

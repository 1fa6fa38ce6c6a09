"""Theory, published figures and recorded runs → tables of lab 12."""

"""What all labs share on the page: canvas and palette, units, Markdown, highlighted source."""

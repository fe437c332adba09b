"""What stands above the single pages: README's headline, the claims, the originals, index.html, generations."""

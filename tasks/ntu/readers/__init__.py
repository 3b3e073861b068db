"""From files to clips: the two published formats, and the folders and zips that hold them."""

"""Drawing a definition: where its nodes and flows go on a plane, and the SVG of it.

``layout.lay_out`` decides where, from the file's coordinates if they are usable and by itself if not; ``svg.draw`` makes the
picture. Pure: the same definition gives the same picture.
"""

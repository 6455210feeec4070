"""Models that are files or folders: loaders, one for each format, and the table of them. A loader makes a definition of
what it found, which is then served like any other; nothing here knows workers or protocols. Libraries are imported when
a model needs them and never before."""

"""The words of the two APIs: what a request says, how hosts are asked, how answers and errors read. Pure."""

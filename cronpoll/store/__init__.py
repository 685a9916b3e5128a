"""Where state is kept: the byte format (`codec`), the files (`journal`), and the few system calls they need (`disk`)."""

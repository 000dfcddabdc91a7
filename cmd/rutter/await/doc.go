// Package await has what commands that write say of waiting: the flags --wait and
// --timeout, a client that waits as they say, and the table of the compute nodes
// that are missing at the end.
package await

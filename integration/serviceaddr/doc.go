// Package serviceaddr builds a small network with three real servers that have a service
// address, and a client that dials only that, for the tests of this folder and for `make
// bench-triton`. It watches the kernels of all servers, and the answers on the link.
//
// It needs CAP_SYS_ADMIN and CAP_NET_ADMIN; all it makes is in namespaces of its own.
package serviceaddr

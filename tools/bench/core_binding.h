// Cores of this machine, and threads bound to them.

#pragma once

namespace lockstep {

// How many cores this process may use, as the system calls them: two threads of one core are two.
int AvailableCores();

// Binds the calling thread, and those that it starts, to one core if there is one for each of
// `ranks` ranks: rank i to the i-th. mpirun does so too; without it, a busy machine may put two
// ranks on one core for a while, and a small call then takes as long as the system needs to change
// from the one to the other.
void BindRank(int rank, int ranks);

}  // namespace lockstep

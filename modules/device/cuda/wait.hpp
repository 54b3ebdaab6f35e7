// How the host waits for a GPU: by looking, so that it also sees when another rank is gone. A GPU that waits for such a
// rank's message never becomes idle.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace lockstep {

// Whether the work before the event's last recording is done. Throws as check_cuda() does.
bool is_done(cudaEvent_t event, const char* doing);

// Block the host.
void wait_for(cudaEvent_t event, const char* doing);
void wait_for(cudaStream_t stream, const char* doing);

// From here on `look` is called every so often in waits of this process that last, and may throw. Empty: nothing is.
// Set before threads wait.
void while_waiting_for_gpu(std::function<void()> look);

}  // namespace lockstep

// The transports that MPI and NCCL use, by name.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::doctor {

using Environment = std::map<std::string, std::string>;

// "MPICH 4.0.2 (ch4:ucx), UCX_TLS=tcp,self" from the text of MPI_Get_library_version and the variables that choose a
// transport.
std::string mpi_transport(const std::string& library, const Environment& environment);
// The variables that known settings and transports look at, as this process has them.
Environment own_environment();

struct NcclTransports {
    std::vector<std::string> networks;          // "IB", "Socket", "Libfabric", …, as NCCL calls them, each once
    std::string provider;                       // of libfabric: "cxi", "efa"
    int over_network = 0, with_gpu_direct = 0;  // channels between nodes, and those of them that bypass host memory
    bool known() const { return !networks.empty(); }
    bool over_sockets() const;
};
// Reads what NCCL writes with NCCL_DEBUG=INFO.
NcclTransports read_nccl_log(const std::string& text);
std::string nccl_transport(const NcclTransports& transports);  // "IB with GPUDirect RDMA"; "" if unknown

// Asks NCCL for a log of its choices, in a file that goes with this object. Made before the first communicator; where
// the user asks for a log already, it does nothing.
class NcclLog {
  public:
    NcclLog();
    ~NcclLog();
    NcclLog(const NcclLog&) = delete;
    NcclLog& operator=(const NcclLog&) = delete;
    NcclTransports read() const;

  private:
    std::string path_;
};

}  // namespace lockstep::doctor

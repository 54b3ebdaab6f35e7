// Transports by name, from what the libraries say.
#define BOOST_TEST_MODULE transports
#include "doctor/transports.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep::doctor;

BOOST_AUTO_TEST_CASE(mpi_by_its_own_words) {
    const std::string mpich =
        "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\nMPICH Device:\tch4:ucx\n"
        "MPICH configure:\t--prefix=/usr\n";
    BOOST_TEST(mpi_transport(mpich, {}) == "MPICH 4.0.2 (ch4:ucx)");
    BOOST_TEST(mpi_transport(mpich, {{"UCX_TLS", "tcp,self"}, {"OMP_WAIT_POLICY", "active"}}) ==
               "MPICH 4.0.2 (ch4:ucx), UCX_TLS=tcp,self");
    BOOST_TEST(mpi_transport("MPICH Version:\t4.2.1\nMPICH Device:\tch4:ofi\n",
                             {{"MPIR_CVAR_CH4_OFI_PROVIDER", "cxi"}, {"FI_PROVIDER", "cxi"}}) ==
               "MPICH 4.2.1 (ch4:ofi), MPIR_CVAR_CH4_OFI_PROVIDER=cxi, FI_PROVIDER=cxi");
    BOOST_TEST(mpi_transport("MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)\n"
                             "MPI BUILD INFO : Wed Nov 15 20:58 2023 (git hash 1cde46f)\n",
                             {}) == "Cray MPICH 8.1.28.29");
    BOOST_TEST(mpi_transport("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4\n", {}) == "Open MPI 4.1.4");
    BOOST_TEST(mpi_transport("Some MPI 1.0", {}) == "Some MPI 1.0");
}

BOOST_AUTO_TEST_CASE(nccl_over_infiniband_with_gpu_direct) {
    const NcclTransports found = read_nccl_log(
        "n1:31842:31905 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.4.19<0>\n"
        "n1:31842:31905 [0] NCCL INFO Using network IB\n"
        "n1:31842:31905 [0] NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        "n1:31842:31905 [0] NCCL INFO Channel 01/0 : 8[0] -> 3[3] [receive] via NET/IB/0/GDRDMA/Shared\n"
        "n1:31842:31905 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n");
    BOOST_TEST(found.known());
    BOOST_TEST((found.networks == std::vector<std::string>{"IB"}));
    BOOST_TEST(found.over_network == 2);
    BOOST_TEST(found.with_gpu_direct == 2);
    BOOST_TEST(!found.over_sockets());
    BOOST_TEST(nccl_transport(found) == "IB with GPUDirect RDMA");
}

BOOST_AUTO_TEST_CASE(nccl_over_infiniband_through_host_memory) {
    const NcclTransports found = read_nccl_log(
        "n1:1:1 [0] NCCL INFO Using network IB\n"
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n"
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n");
    BOOST_TEST(found.with_gpu_direct == 1);
    BOOST_TEST(nccl_transport(found) == "IB, partly through host memory");
}

BOOST_AUTO_TEST_CASE(nccl_over_sockets) {
    const NcclTransports found = read_nccl_log(
        "n1:152:386 [0] NCCL INFO NET/IB : No device found.\n"
        "n1:152:386 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.4.51<0>\n"
        "n1:152:386 [0] NCCL INFO Using network Socket\r\n"
        "n1:152:386 [0] NCCL INFO Channel 00/0 : 17[1] -> 0[0] [receive] via NET/Socket/0\n");
    BOOST_TEST(found.over_sockets());
    BOOST_TEST(nccl_transport(found) == "Socket through host memory");
    // Without the line that names the network the channels do.
    BOOST_TEST(read_nccl_log("NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n").over_sockets());
}

BOOST_AUTO_TEST_CASE(nccl_over_slingshot_by_a_plugin) {
    const NcclTransports found = read_nccl_log(
        "nid001:7:7 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)\n"
        "nid001:7:7 [0] NCCL INFO Using network AWS Libfabric\n"
        "nid001:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA\n");
    BOOST_TEST((found.networks == std::vector<std::string>{"AWS Libfabric"}));
    BOOST_TEST(found.provider == "cxi");
    BOOST_TEST(found.with_gpu_direct == 1);
    BOOST_TEST(nccl_transport(found) == "AWS Libfabric (libfabric cxi) with GPUDirect RDMA");
}

BOOST_AUTO_TEST_CASE(what_is_no_log_of_nccl_says_nothing) {
    for (const char* text : {"", "Using network Socket", "NCCL WARN Using network Socket\n", "NCCL INFO via NET/"}) {
        const NcclTransports found = read_nccl_log(text);
        BOOST_TEST(!found.known());
        BOOST_TEST(!found.over_sockets());
        BOOST_TEST(nccl_transport(found) == "");
    }
}

// The machine that runs PTX: control flow, memory, collectives, counts.
#define BOOST_TEST_MODULE ptx_machine
#include <boost/test/unit_test.hpp>

#include "ptx/machine_support.hpp"

using namespace lockstep::ptx;

namespace {

using u32 = std::uint32_t;

u32 collatz_steps(u32 value) {
    u32 steps = 0;
    for (; value > 1; ++steps) value = value % 2 == 0 ? value / 2 : 3 * value + 1;
    return steps;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(control)

BOOST_AUTO_TEST_CASE(lanes_take_their_own_ways) {
    expect(R"(
        add.s32 %r2, %r0, 1;
        mov.u32 %r3, 0;
    again:
        setp.le.u32 %p0, %r2, 1;
        @%p0 bra done;
        add.s32 %r3, %r3, 1;
        and.b32 %r4, %r2, 1;
        setp.eq.s32 %p1, %r4, 0;
        @%p1 bra even;
        mad.lo.s32 %r2, %r2, 3, 1;
        bra.uni again;
    even:
        shr.u32 %r2, %r2, 1;
        bra.uni again;
    done:
        st.global.u32 [%rd2], %r3;
    )",
           [](u32 thread) { return collatz_steps(thread + 1); }, {}, {96});
}

// Lanes leave the kernel on their ways; the others go on.
BOOST_AUTO_TEST_CASE(lanes_leave_early) {
    expect(R"(
        st.global.u32 [%rd2], %r0;
        setp.lt.u32 %p0, %r1, 7;
        @%p0 ret;
        setp.gt.u32 %p0, %r1, 20;
        @%p0 exit;
        add.s32 %r2, %r0, 1000;
        st.global.u32 [%rd2], %r2;
    )",
           [](u32 thread) { return thread % 32 < 7 || thread % 32 > 20 ? thread : thread + 1000; }, {}, {70});
}

// In lockstep lanes reconverge at the immediate post-dominator: what follows is executed once.
BOOST_AUTO_TEST_CASE(lanes_meet_again) {
    const std::string body = R"(
        setp.lt.u32 %p0, %r1, 7;
        @%p0 bra small;
        add.s32 %r2, %r1, 1;
        bra.uni join;
    small:
        add.s32 %r2, %r1, 2;
    join:
        activemask.b32 %r3;
        st.global.u32 [%rd2], %r3;
    )";
    Options options;
    Buffers buffers;
    BOOST_TEST(run_program(program(body), buffers, {}, {32}, 0, options).findings.empty());
    for (u32 lane = 0; lane < 32; ++lane) BOOST_TEST(word(buffers, lane) == ~0u);
    options.schedule = Options::Schedule::split;
    BOOST_TEST(run_program(program(body), buffers, {}, {32}, 0, options).findings.empty());
    for (u32 lane = 0; lane < 32; ++lane) BOOST_TEST(word(buffers, lane) == (lane < 7 ? 0x7fu : ~0x7fu));
}

BOOST_AUTO_TEST_CASE(a_function_is_called) {
    const std::string function = R"(
.version 9.0
.target sm_80
.address_size 64
.func (.param .b32 result) twice_or_thrice(.param .b32 number, .param .b32 times)
;
.func (.param .b32 result) twice_or_thrice(.param .b32 number, .param .b32 times)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    ld.param.u32 %r1, [number];
    ld.param.u32 %r2, [times];
    mul.lo.s32 %r3, %r1, %r2;
    st.param.b32 [result+0], %r3;
    setp.eq.s32 %p1, %r2, 2;
    @%p1 ret;
    add.s32 %r3, %r3, 100;
    st.param.b32 [result+0], %r3;
    ret;
}
.visible .entry kernel(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1;
    add.s32 %r2, %r2, 2;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    { // callseq 0, 0
    .param .b32 param0;
    st.param.b32 [param0+0], %r1;
    .param .b32 param1;
    st.param.b32 [param1+0], %r2;
    .param .b32 retval0;
    call.uni (retval0), twice_or_thrice, (param0, param1);
    ld.param.b32 %r3, [retval0+0];
    }
    st.global.u32 [%rd1], %r3;
    ret;
}
)";
    for (const Options& options : schedules()) {
        Buffers buffers;
        const Outcome outcome = run_program(function, buffers, {}, {32}, 0, options);
        BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
        for (u32 lane = 0; lane < 32; ++lane)
            BOOST_TEST(word(buffers, lane) == (lane % 2 == 0 ? 2 * lane : 3 * lane + 100));
    }
}

BOOST_AUTO_TEST_CASE(blocks_know_who_they_are) {
    Buffers buffers;
    const Outcome outcome = run_program(program(R"(
        mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;
        mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y;
        mad.lo.s32 %r7, %r4, %r6, %r3;
        mad.lo.s32 %r7, %r7, %r5, %r2;
        mov.u32 %r8, %tid.y; mov.u32 %r9, %ntid.x; mov.u32 %r10, %ntid.y;
        mad.lo.s32 %r11, %r8, %r9, %r0;
        mul.lo.s32 %r12, %r9, %r10;
        mad.lo.s32 %r13, %r7, %r12, %r11;
        mul.wide.u32 %rd5, %r13, 4;
        add.s64 %rd5, %rd1, %rd5;
        st.global.u32 [%rd5], %r13;
    )"),
                                        buffers, {3, 2, 5}, {5, 9});
    BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
    for (u32 i = 0; i < 3 * 2 * 5 * 45; ++i) BOOST_REQUIRE_EQUAL(word(buffers, i), i);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(vectors_and_narrow_types) {
    expect(R"(
        mul.wide.u32 %rd5, %r0, 16;
        add.s64 %rd5, %rd0, %rd5;
        ld.global.nc.v4.u32 {%r2, %r3, %r4, %r5}, [%rd5];
        xor.b32 %r2, %r2, %r3;
        xor.b32 %r4, %r4, %r5;
        ld.global.u8 %h1, [%rd5+1];
        ld.global.s8 %r6, [%rd5+2];
        ld.global.v2.u16 {%h2, %h3}, [%rd5+4];
        cvt.u32.u16 %r7, %h1;
        cvt.u32.u16 %r8, %h3;
        add.s32 %r2, %r2, %r4;
        add.s32 %r2, %r2, %r6;
        add.s32 %r2, %r2, %r7;
        add.s32 %r2, %r2, %r8;
        st.global.u32 [%rd2], %r2;
    )",
           [](u32 thread) {
               const auto in = [&](u32 i) { return (4 * thread + i) * 2654435761u; };
               const auto byte = static_cast<std::int8_t>(in(0) >> 16);
               return (in(0) ^ in(1)) + (in(2) ^ in(3)) + static_cast<u32>(std::int32_t{byte}) + (in(0) >> 8 & 255) +
                      (in(1) >> 16);
           });
}

// Generic addresses of each memory; a .local array; static and dynamic shared memory.
BOOST_AUTO_TEST_CASE(generic_addresses) {
    expect(R"(
        .local .align 8 .b8 own[16];
        cvta.shared.u64 %rd5, fixed;
        mov.u32 %r2, dynamic;
        cvt.u64.u32 %rd6, %r2;
        cvta.shared.u64 %rd6, %rd6;
        cvta.local.u64 %rd7, own;
        mul.wide.u32 %rd8, %r0, 4;
        add.s64 %rd5, %rd5, %rd8;
        add.s64 %rd6, %rd6, %rd8;
        add.s32 %r3, %r0, 1;
        st.u32 [%rd5], %r3;
        st.u32 [%rd6], %r0;
        st.u32 [%rd7+8], %r1;
        ld.local.u32 %r4, [own+8];
        cvta.to.shared.u64 %rd9, %rd5;
        ld.shared.u32 %r5, [%rd9];
        shl.b32 %r6, %r0, 2;
        add.s32 %r6, %r6, %r2;
        ld.shared.u32 %r7, [%r6];
        ld.u32 %r8, [%rd3];
        add.s32 %r4, %r4, %r5;
        add.s32 %r4, %r4, %r7;
        add.s32 %r4, %r4, %r8;
        setp.eq.s32 %p0, %r0, 3;
        selp.b64 %rd10, %rd5, %rd2, %p0;
        st.u32 [%rd10], %r4;
        st.global.u32 [%rd2], %r4;
    )",
           [](u32 thread) { return thread % 32 + 2 * thread + 1 + thread * 2654435761u; }, {}, {64}, 256);
}

// Sources shorter than 16 bytes are filled up with zeroes; two groups, of which one is waited for first. Prefetches may
// point anywhere.
BOOST_AUTO_TEST_CASE(asynchronous_copies) {
    expect(R"(
        shl.b32 %r2, %r0, 4;
        mov.u32 %r3, dynamic;
        add.s32 %r3, %r3, %r2;
        cvt.u64.u32 %rd5, %r2;
        add.s64 %rd5, %rd0, %rd5;
        and.b32 %r4, %r0, 15;
        prefetch.global.L2 [%rd5];
        prefetch.global.L2 [%rd5+1048576];
        cp.async.cg.shared.global [%r3], [%rd5], 16, %r4;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r3+1024], [%rd5+4], 4;
        cp.async.commit_group;
        cp.async.wait_group 1;
        ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3];
        cp.async.wait_all;
        ld.shared.u32 %r9, [%r3+1024];
        add.s32 %r5, %r5, %r6;
        add.s32 %r5, %r5, %r7;
        add.s32 %r5, %r5, %r8;
        add.s32 %r5, %r5, %r9;
        st.global.u32 [%rd2], %r5;
    )",
           [](u32 thread) {
               u32 words[4] = {}, sum = (4 * thread + 1) * 2654435761u, whole[4];
               for (u32 i = 0; i < 4; ++i) whole[i] = (4 * thread + i) * 2654435761u;
               std::memcpy(words, whole, thread % 16);
               for (const u32 one : words) sum += one;
               return sum;
           },
           {}, {64}, 2048);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(collectives)

BOOST_AUTO_TEST_CASE(shuffles_and_votes) {
    expect(R"(
        shfl.sync.bfly.b32 %r2|%p0, %r0, 5, 31, -1;
        shfl.sync.up.b32 %r3|%p1, %r0, 3, 0, -1;
        shfl.sync.down.b32 %r4|%p2, %r0, 4, 0x1807, -1;
        shfl.sync.idx.b32 %r5, %r0, 2, 0x181f, -1;
        setp.lt.u32 %p3, %r1, 9;
        vote.sync.ballot.b32 %r6, %p3, -1;
        vote.sync.any.pred %p4, %p3, -1;
        vote.sync.all.pred %p5, %p3, -1;
        selp.b32 %r7, 1, 0, %p1;
        selp.b32 %r8, 2, 0, %p2;
        selp.b32 %r9, 4, 0, %p4;
        selp.b32 %r10, 8, 0, %p5;
        add.s32 %r2, %r2, %r3; add.s32 %r2, %r2, %r4; add.s32 %r2, %r2, %r5; add.s32 %r2, %r2, %r6;
        add.s32 %r2, %r2, %r7; add.s32 %r2, %r2, %r8; add.s32 %r2, %r2, %r9; add.s32 %r2, %r2, %r10;
        st.global.u32 [%rd2], %r2;
    )",
           [](u32 thread) {
               const u32 lane = thread % 32, warp = thread - lane;
               const bool up = lane >= 3, down = lane + 4 <= (lane & 24) + 7;
               return warp + (lane ^ 5) + warp + (up ? lane - 3 : lane) + warp + (down ? lane + 4 : lane) + warp +
                      (lane & 24) + 2 + 511 + up + 2 * down + 4;
           },
           {}, {64});
}

// Halves of a warp that come to a collective one after the other meet there, and only lanes of its mask.
BOOST_AUTO_TEST_CASE(parts_meet_at_collectives) {
    expect(R"(
        mov.u32 %r2, %r0;
        setp.lt.u32 %p0, %r1, 16;
        @%p0 bra low;
        shfl.sync.idx.b32 %r3, %r2, 20, 31, 0xffff0000;
        bra.uni join;
    low:
        shfl.sync.idx.b32 %r3, %r2, 4, 31, 0x0000ffff;
    join:
        setp.lt.u32 %p1, %r1, 5;
        @%p1 bra meet;
        add.s32 %r2, %r2, 100;
    meet:
        bar.warp.sync -1;
        shfl.sync.bfly.b32 %r4, %r2, 31, 31, -1;
        add.s32 %r3, %r3, %r4;
        st.global.u32 [%rd2], %r3;
    )",
           [](u32 thread) {
               const u32 lane = thread % 32, warp = thread - lane, other = 31 - lane;
               return warp + (lane < 16 ? 4 : 20) + warp + other + (other < 5 ? 0 : 100);
           },
           {}, {64});
}

BOOST_AUTO_TEST_CASE(barriers_order_warps) {
    expect(R"(
        shl.b32 %r2, %r0, 2;
        mov.u32 %r3, dynamic;
        add.s32 %r4, %r3, %r2;
        mov.u32 %r5, 0;
        mov.u32 %r6, %r0;
    again:
        st.shared.u32 [%r4], %r6;
        bar.sync 0;
        add.s32 %r7, %r0, 37;
        rem.u32 %r7, %r7, 128;
        shl.b32 %r7, %r7, 2;
        add.s32 %r7, %r7, %r3;
        ld.shared.u32 %r6, [%r7];
        bar.sync 0;
        add.s32 %r5, %r5, 1;
        setp.lt.u32 %p0, %r5, 10;
        @%p0 bra again;
        st.global.u32 [%rd2], %r6;
    )",
           [](u32 thread) { return (thread + 370) % 128; }, {}, {128}, 512);
}

// Two halves of a block pass barriers of their own.
BOOST_AUTO_TEST_CASE(named_barriers_order_their_warps) {
    expect(R"(
        shl.b32 %r2, %r0, 2;
        mov.u32 %r3, dynamic;
        add.s32 %r4, %r3, %r2;
        st.shared.u32 [%r4], %r0;
        shr.u32 %r5, %r0, 6;
        add.s32 %r5, %r5, 1;
        bar.sync %r5, 64;
        xor.b32 %r6, %r2, 252;
        add.s32 %r6, %r6, %r3;
        ld.shared.u32 %r7, [%r6];
        bar.sync %r5, 64;
        st.shared.u32 [%r4], %r7;
        st.global.u32 [%rd2], %r7;
    )",
           [](u32 thread) { return thread ^ 63; }, {}, {128}, 512);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(what_is_counted) {
    const Outcome outcome = run_program(program(R"(
        .loc 1 10 1
        ld.global.f32 %f0, [%rd3];
        mul.wide.u32 %rd5, %r0, 128;
        add.s64 %rd5, %rd0, %rd5;
        ld.global.f32 %f1, [%rd5];
        .loc 1 11 1
        ex2.approx.ftz.f32 %f0, %f0;
        shl.b32 %r3, %r1, 7;
        mov.u32 %r2, dynamic;
        add.s32 %r3, %r3, %r2;
        st.shared.f32 [%r3], %f0;
        shl.b32 %r4, %r1, 4;
        add.s32 %r4, %r4, %r2;
        st.shared.v4.f32 [%r4+4096], {%f0, %f0, %f0, %f0};
        ld.shared.f32 %f2, [%r3];
        .loc 1 12 1
        bar.sync 0;
        setp.lt.u32 %p0, %r1, 8;
        @%p0 st.global.f32 [%rd2], %f0;
    )") + ".file 1 \"kernel.cu\"\n",
                                        {}, {32}, 8192);
    BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
    const Counts& counts = outcome.counts;
    BOOST_TEST(counts.instructions == 7 + 16 + 1);
    BOOST_TEST(counts.lane_instructions == 24 * 32 - 24);
    BOOST_TEST(counts.special == 1);
    BOOST_TEST(counts.barriers == 1);
    BOOST_TEST(counts.global_loads == 2);
    BOOST_TEST(counts.global_stores == 1);
    BOOST_TEST(counts.shared_loads == 1);
    BOOST_TEST(counts.shared_stores == 2);
    BOOST_TEST(counts.shared_passes == 32 + 32 + 4);  // all lanes in one bank, twice; 512 bytes without conflict
    BOOST_TEST(counts.global_bytes == 128 + 128 + 32);
    BOOST_TEST(counts.global_sectors == 4 + 32 + 1);
    BOOST_TEST(counts.sectors_read == 4 + 31);  // one of the 32 was read before
    BOOST_TEST(counts.sectors_written == 1);
    BOOST_REQUIRE(!counts.lines.empty());
    BOOST_TEST(counts.lines[0].file == "kernel.cu");
    BOOST_TEST(counts.lines[0].line == 11);
    BOOST_TEST(counts.lines[0].instructions == 9);
}

// Of what a launch touches, each sector counts once: as read if that came first, as written if it is.
BOOST_AUTO_TEST_CASE(different_sectors_are_counted) {
    const Outcome outcome = run_program(program(R"(
        ld.global.f32 %f0, [%rd3];
        ld.f32 %f1, [%rd3];
        st.global.f32 [%rd3], %f0;
        st.global.f32 [%rd2], %f0;
        bar.warp.sync 0xffffffff;
        ld.global.f32 %f2, [%rd2];
        st.global.f32 [%rd2], %f2;
    )"));
    BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
    BOOST_TEST(outcome.counts.sectors_read == 4);
    BOOST_TEST(outcome.counts.sectors_written == 4 + 4);
    BOOST_TEST(outcome.counts.global_sectors == 6 * 4);
    BOOST_TEST(outcome.counts.warp_barriers == 1);
    BOOST_TEST(outcome.counts.barriers == 0);
}

BOOST_AUTO_TEST_CASE(shapes) {
    const Module module(
        ".version 9.0\n.target sm_80\n.address_size 64\n.shared .align 8 .b8 table[24];\n"
        ".visible .entry first(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 c)\n"
        ".maxntid 64, 2, 1\n.minnctapersm 2\n{ .shared .f32 own; ret; }\n.entry second() { ret; }\n");
    BOOST_REQUIRE(module.kernels().size() == 2);
    BOOST_TEST(module.find("third") == nullptr);
    const KernelShape& first = shape(*module.find("first"));
    BOOST_TEST(first.target == "sm_80");
    BOOST_TEST(first.parameter_offsets == (std::vector<u32>{0, 8, 24}));
    BOOST_TEST(first.parameter_bytes == (std::vector<u32>{1, 12, 8}));
    BOOST_TEST(first.most_threads == 128);
    BOOST_TEST(first.static_shared_bytes == 32);
    BOOST_TEST(shape(*module.find("second")).most_threads == 0);
}

// The PTX instructions that kernels use, as functions of their names (translate.py); semantics by
// NVIDIA's "PTX ISA". Fragments lie across the lanes as its chapter "Matrix fragments for
// mma.m16n8k16 with floating point type" and "ldmatrix" say.

#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::emulation::ptx {

void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                         uint32_t a0, uint32_t a1, uint32_t a2,
                                                         uint32_t a3, uint32_t b0, uint32_t b1,
                                                         float c0, float c1, float c2, float c3);
void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3,
                                                       uint32_t a0, uint32_t a1, uint32_t a2,
                                                       uint32_t a3, uint32_t b0, uint32_t b1,
                                                       float c0, float c1, float c2, float c3);

void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& x0, uint32_t& x1, uint32_t& x2,
                                              uint32_t& x3, uint32_t shared);
void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& x0, uint32_t& x1, uint32_t& x2,
                                                    uint32_t& x3, uint32_t shared);

void cp_async_cg_shared_global(uint32_t shared, const void* from, int bytes, int bytes_read);
void cp_async_ca_shared_global(uint32_t shared, const void* from, int bytes, int bytes_read);
void cp_async_wait_all();

void ex2_approx_ftz_f32(float& result, float x);
void cvt_rn_bf16x2_f32(uint32_t& packed, float high, float low);
void cvt_rn_f16x2_f32(uint32_t& packed, float high, float low);

}  // namespace lockstep::emulation::ptx

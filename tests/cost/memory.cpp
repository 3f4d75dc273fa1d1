#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/memory.hpp>
#include <dynapipe/cost/stage_costs.hpp>

using namespace dynapipe;

namespace {

constexpr recompute_mode modes[] = {recompute_mode::none, recompute_mode::selective, recompute_mode::full};

/// Stores 10 bytes a token, needs 25 to run forward and 7 more to run backward.
struct plain_model {
  [[nodiscard]] nanoseconds forward(layer_kind, const shape&, recompute_mode) const { return nanoseconds{1}; }
  [[nodiscard]] nanoseconds backward(layer_kind, const shape&, recompute_mode) const { return nanoseconds{1}; }
  [[nodiscard]] bytes stored(layer_kind, const shape& s, recompute_mode) const { return bytes{10 * s.rows * s.input}; }
  [[nodiscard]] bytes forward_peak(layer_kind, const shape& s, recompute_mode) const {
    return bytes{25 * s.rows * s.input};
  }
  [[nodiscard]] bytes backward_peak(layer_kind, const shape& s, recompute_mode) const {
    return bytes{7 * s.rows * s.input};
  }
  [[nodiscard]] bytes state(layer_kind) const { return bytes{0}; }
};

}  // namespace

TEST_CASE("model state under ZeRO, by hand") {
  // 1,001 parameters in 16 bits: weights and gradients 2 bytes, Adam's states 12; 2 tensor- and 4 data-parallel ranks.
  const auto parts = [](std::int64_t zero) { return state_of(1'001, adam(dtype::bf16), {2, zero, 4}); };
  const std::int64_t whole[] = {1'001, 1'001, 6'006};
  const std::int64_t divided[] = {251, 251, 1'502};  // 250.25, 250.25, 1,501.5
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    CHECK(parts(zero).weights.value() == (zero >= 3 ? divided : whole)[0]);
    CHECK(parts(zero).gradients.value() == (zero >= 2 ? divided : whole)[1]);
    CHECK(parts(zero).optimizer.value() == (zero >= 1 ? divided : whole)[2]);
  }
  CHECK(total_state_of(1'001, adam(dtype::bf16), {2, 0, 4}).value() == 8'008);
  CHECK(total_state_of(1'001, adam(dtype::bf16), {2, 1, 4}).value() == 3'504);  // 1,001 + 1,001 + 1,501.5
  CHECK(total_state_of(1'001, adam(dtype::bf16), {2, 2, 4}).value() == 2'753);  // 1,001 + 250.25 + 1,501.5
  CHECK(total_state_of(1'001, adam(dtype::bf16), {2, 3, 4}).value() == 2'002);
  // SGD with momentum in fp32.
  CHECK(state_of(1'000, {4, 4, 4}, {1, 1, 8}).optimizer.value() == 500);
  CHECK(state_of(int64_limit, adam(dtype::bf16), {}).weights == bytes::max());
  CHECK(total_state_of(int64_limit, adam(dtype::bf16), {}) == bytes::max());

  CHECK(adam(dtype::bf16) == parameter_bytes{2, 2, 12});
  CHECK(adam(dtype::fp32) == parameter_bytes{4, 4, 8});
  CHECK(adam(dtype::fp64) == parameter_bytes{8, 8, 16});

  const model_spec moe = presets::qwen3_30b_a3b();
  // All 128 experts are resident: attention 18,874,368, router 262,144, experts 128 x 3 x 2,048 x 768, norms 4 x 2,048.
  CHECK(state_of(moe, layer_kind::decoder).weights.value() ==
        2 * (18'874'368 + 262'144 + 128 * 3 * 2'048 * 768 + 4 * 2'048));
}

TEST_CASE("logits of the last stage") {
  const model_spec llama = presets::llama_3_8b();
  CHECK(logits_bytes(llama, {2, 100, 0}).value() == 200 * 4 * 128'256);
  CHECK(logits_bytes(llama, {2, 100, 0}, 8).value() == 200 * 4 * 128'256 / 8);
  CHECK(logits_bytes(presets::t5_11b(), {2, 100, 30}).value() == 60 * 4 * 32'128);
  CHECK(logits_bytes(llama, with_sample(with_sample({}, 70), 30)).value() == 100 * 4 * 128'256);
  const analytic_cost cost{llama, presets::h100()};
  CHECK(cost.stored(layer_kind::head, {2, 100, 0}, recompute_mode::none) ==
        logits_bytes(llama, {2, 100, 0}) + bytes{200 * 4 * 4'096});
}

TEST_CASE("the room for activations") {
  const cluster_spec cluster = presets::a100_80g();
  CHECK(activation_room(cluster, gib(30)) == gib(49));
  CHECK(activation_room(cluster, gib(79)) == bytes{0});
  CHECK(activation_room(cluster, bytes::max()) == bytes{0});
}

TEST_CASE("a stack's peak and its inverse, by hand") {
  const plain_model cost;
  const layer_stack stack{layer_kind::decoder, 4, 3};
  // Twelve layers' stored, and 15 a token that a forward needs beyond its 10.
  CHECK(peak_of_stack(cost, stack, {2, 100, 0}, recompute_mode::none).value() == (12 * 10 + 15) * 200);
  CHECK(largest_rows(cost, stack, shape{1, 100, 0}, recompute_mode::none, bytes{135 * 100 * 7}) == 7);
  CHECK(largest_rows(cost, stack, shape{1, 100, 0}, recompute_mode::none, bytes{135 * 100 * 8 - 1}) == 7);
  CHECK(largest_rows(cost, stack, shape{1, 100, 0}, recompute_mode::none, bytes{135 * 100 - 1}) == 0);
}

TEST_CASE("the largest that fits, against a search one by one") {
  constexpr unsigned seed = 77;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 2'000; ++round) {
    const auto slope = static_cast<std::int64_t>(random() % 50);
    const auto fixed = static_cast<std::int64_t>(random() % 50);
    const auto most = static_cast<std::int64_t>(random() % 100);
    const bytes room{static_cast<std::int64_t>(random() % 2'000)};
    int calls = 0;
    const auto needed = [&](std::int64_t n) {
      ++calls;
      return bytes{fixed + slope * n};
    };
    std::int64_t expected = -1;
    while (expected < most && fixed + slope * (expected + 1) <= room.value())
      ++expected;
    REQUIRE(largest_fitting(needed, room, most) == expected);
    REQUIRE(calls <= 20);
  }
}

TEST_CASE("one row more than the largest number does not fit") {
  constexpr unsigned seed = 78;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (const model_spec& model : presets::models())
    for (const recompute_mode mode : modes) {
      const analytic_cost cost{model, presets::h200()};
      const layer_stack stack{model.decoder_kind(), 1 + static_cast<std::int64_t>(random() % 16),
                              1 + static_cast<std::int64_t>(random() % 8)};
      const std::int64_t length = 1 + static_cast<std::int64_t>(random() % 8'192);
      const std::int64_t target = model.encoder_decoder() ? 1 + static_cast<std::int64_t>(random() % 1'024) : 0;
      CAPTURE(model.name);
      CAPTURE(length);
      const bytes room = activation_room(presets::h200(), gib(40));
      const shape one{1, length, target};
      const std::int64_t rows = largest_rows(cost, stack, one, mode, room);
      REQUIRE(rows >= 0);
      if (rows > 0) REQUIRE(peak_of_stack(cost, stack, repeated(one, rows), mode) <= room);
      REQUIRE(peak_of_stack(cost, stack, repeated(one, rows + 1), mode) > room);
      const varlen_shape sample = with_sample({}, length, target, model.window);
      REQUIRE(largest_rows(cost, stack, sample, mode, room) == rows);
    }
}

TEST_CASE("rows that fit on a whole stage") {
  const model_spec model = presets::llama_3_8b();
  const analytic_cost cost{model, presets::h100()};
  const stage_spec last{.encoder = {}, .decoder = {24, 32}, .head = true};
  const bytes room = gib(30);
  const auto needed = [&](std::int64_t rows) {
    const stage_cost bill = cost_of_stage(model, last, cost, {rows, 2'048, 0}, recompute_mode::none);
    return std::max(bill.forward_peak, bill.stored + bill.backward_peak);
  };
  const std::int64_t rows = largest_fitting(needed, room);
  CHECK(rows > 0);
  CHECK(needed(rows) <= room);
  CHECK(needed(rows + 1) > room);
}

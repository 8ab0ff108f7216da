fn ${side}_unit_of(columns: ptr<function, array<f32, ${SIDE}_GROUP>>) -> Unit {
  //@ if UNIT_OF_4
  return Unit((*columns)[0], (*columns)[1], (*columns)[2], (*columns)[3]);
  //@ else
  return Unit((*columns)[0], (*columns)[1]);
  //@ end
}
